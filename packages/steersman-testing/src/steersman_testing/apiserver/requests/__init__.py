"""What a request is: its URL, its body, what it selects, and the form of answer that it accepts."""
