"""A page for people: repositories, tags, layers, where blobs live, nodes and transfers. Gives `add_pages()`.
Depends on the registry's HTTP server and nodes. The files in static/ are served as they are: no build step,
nothing from elsewhere."""
