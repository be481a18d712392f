"""Tables, figures, verdicts and the page that show finished runs beside published results."""
