"""The tools that RDMA people know, over weft's adapter: perftest's, and those of rdma-core's examples.

perftest    ib_write_bw, ib_read_lat and the like: plan (what runs), endpoint (queue pairs and memory), loop (what is
            measured), report (perftest's columns)
pingpong    ibv_rc_pingpong, ibv_uc_pingpong, ibv_ud_pingpong
devinfo     ibv_devinfo, ibv_devices
exchange    what two ends tell each other over TCP before, between and after
programs    all of them by name, and as little programs for a PATH
"""
