"""Objects as tables: what kubectl shows of them."""
