"""Simulation: real operations on real tables under a scheduler that decides who continues, who stops and what fails."""
