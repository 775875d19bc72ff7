"""A program in C under faults."""


def start(lab, host, replicate, blocks):
    port = str(lab.free_port())
    replica = host("h1").start(replicate, port)
    replica.wait_for_port(int(port))
    return replica, host("h2").start(replicate, port, "localhost", str(blocks))


def test_all_blocks_arrive(lab, host, replicate):
    replica, writer = start(lab, host, replicate, 100)
    assert writer.wait(timeout=60) == 0, writer.output()
    assert replica.wait(timeout=60) == 0
    assert "100 of 100 blocks have arrived" in replica.output()
    assert lab.port_counts()["h2"]


def test_a_cable_that_loses_packets_is_not_noticed(lab, host, replicate):
    lab.degrade("h2/1", "--ber", "1e-6")
    replica, writer = start(lab, host, replicate, 100)
    assert writer.wait(timeout=60) == 0, writer.output()
    assert "100 of 100 blocks have arrived" in replica.output()


def test_a_writer_without_a_cable_reports_the_status(lab, host, replicate, break_cable):
    replica, writer = start(lab, host, replicate, 1)  # one that ends before the fault
    assert writer.wait(timeout=60) == 0
    break_cable("h1/1")
    replica, writer = start(lab, host, replicate, 100)
    assert writer.wait(timeout=60) == 1
    assert "transport retry counter exceeded" in writer.output()
    assert replica.wait(timeout=60) == 0
    assert "0 of 0 blocks have arrived" in replica.output()
