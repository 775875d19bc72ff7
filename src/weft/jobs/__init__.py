"""LIVE JOBS: real programs as ranks on the hosts of a lab, and `store`, in which they find each other."""
