"""The theory of RCRL (section 4, appendices A and B), computed on finite MDPs."""
