"""Starting the ranks of a job and keeping them alive: command lines, supervision, batch jobs. Imports no TensorFlow."""
