"""What a never-seen database would become: tables, keys, columns with what is lost, from records that are there."""
