"""What every engine needs before its clock starts: rules of the network, ports, messages and ways, as records."""
