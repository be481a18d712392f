"""The theory of RCRL (section 4, appendices A and B) on finite MDPs, exact and executable."""
