"""Pictures of a table: its LSM trees and its history, for browsers (SVG, HTML) and for terminals."""
