"""Run the usual RDMA tools over weft's adapter: those of perftest, and the examples of rdma-core.

perftest    ib_write_bw, ib_read_lat and the like: plan (the options), endpoint (queue pairs and memory), loop (the
            measurement), report (perftest's columns)
pingpong    ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong
devinfo     ibv_devinfo, ibv_devices
exchange    the messages of the two ends over TCP
programs    all tools by name, and as executables for a PATH
"""

__all__: list[str] = []
