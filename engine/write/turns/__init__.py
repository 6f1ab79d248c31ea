"""Which of several writers of one log goes next."""
