"""thunder: a torch.compile front end that shows its work."""
