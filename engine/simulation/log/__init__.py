"""Tables with a log in a simulation: clients, operations and what must hold."""
