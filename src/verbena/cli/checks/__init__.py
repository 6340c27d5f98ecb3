"""What `verbena doctor` looks at, one theme per file: kernel, devices, limits, transfer.
Gives functions that return diagnoses; the folders of the system they read are parameters.
Depends on verbs and errors; knows no command line."""
