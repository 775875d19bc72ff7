"""The subnet manager: brings a subnet up and keeps it so, by MADs alone."""
