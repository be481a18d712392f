"""SimPLe's model and policy measured: against predictors without dynamics, against random play."""
