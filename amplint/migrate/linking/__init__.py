"""Files of one run that are migrated together: linked to one text, migrated as one file, and taken apart again."""
