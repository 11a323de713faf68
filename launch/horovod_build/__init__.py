"""Turns the published source of Horovod into a wheel for the installed TensorFlow.

`launch/build_horovod.sh` is the way in. Standard library only: it runs in environments that hold little
more than TensorFlow.
"""
