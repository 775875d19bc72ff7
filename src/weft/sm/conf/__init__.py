"""Configuration files: opensm.conf, opafm.xml, and what their options mean."""
