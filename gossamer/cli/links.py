"""`gossamer links`: encrypted tunnels between the sites of a training."""

from pathlib import Path

from gossamer._common.formatting import say


def links(sites: Path, *, out: Path, mesh: bool = False) -> None:
    """Write what every site needs to train over WireGuard.

    Each site gets a directory with its WireGuard configuration and private key, firewall rules that let the training
    answer inside the tunnels only, and the command that starts the training.

    Example: gossamer links sites.toml --out links

    Parameters
    ----------
    sites
        TOML file: a table [[site]] with name, address and neighbours for each site, or graph = "ring" for all. The
        first site is the meeting point, to which all others have a tunnel.
    out
        Directory to make. It holds private keys.
    mesh
        One tunnel for every pair of sites instead of one per edge: for runs in which neighbours change, or in which all
        sites average at once.
    """
    from gossamer.cli.output import print_table
    from gossamer.links.link_plan import read_plan
    from gossamer.links.site_files import INTERFACE, write_site_files

    plan = read_plan(sites, mesh)
    write_site_files(plan, out)
    rows = []
    for k, site in enumerate(plan.sites):
        peers = ", ".join(plan.sites[p].name for p in plan.peers(k))
        rows.append([site.name, str(site.inside), site.endpoint or "unreachable", peers])
    print_table(["site", "in the tunnels", "reached at (UDP)", "tunnels to"], rows, figures=False)
    say(
        f"links: {len(plan.tunnels)} tunnels between {len(plan.sites)} sites in {out}. Bring each directory to its "
        f"site in secret, because it holds the site's private key, and delete it here. There, copy {INTERFACE}.* to "
        f"/etc/wireguard, run wg-quick up {INTERFACE}, then ./launch.sh train.py."
    )
