"""Where models come from: names to folders, folders screened, weights read, objects adopted."""
