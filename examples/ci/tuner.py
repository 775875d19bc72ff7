"""The choices of an NCCL tuner for all-reduces on the cluster of this project: four DGX H100."""

CLUSTER = "superpod:su=1,servers=4"


def choose(size_bytes):
    """Return the algorithm and the protocol for a buffer."""
    if size_bytes < 256 * 1024:
        return "Tree", "LL"
    if size_bytes < 128 * 1024 * 1024:
        return "Tree", "LL128"
    return "NVLSTree", "Simple"
