"""The network between sites: encrypted tunnels, who may connect to whom, and what listens on a machine."""
