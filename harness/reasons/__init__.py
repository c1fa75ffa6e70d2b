"""What reasons are told from, and the reasons themselves."""
