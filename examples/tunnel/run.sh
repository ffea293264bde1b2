#!/usr/bin/env bash
# Two sites train over WireGuard, their only connection. Everything happens on this machine:
#
#     sudo PYTHON=.venv/bin/python examples/tunnel/run.sh [directory for the results]
#
#     berlin                                                              lima
#     train.py - wg-berlin === 192.0.2.1 === one wire === 192.0.2.2 === wg-lima - train.py
#                10.77.0.1             UDP 51820, encrypted             10.77.0.2
#
# Each site is a network namespace that contains only its end of the tunnel, so the training cannot reach the other site
# unencrypted even by mistake. A second namespace per site is its router and has the WireGuard socket. All namespaces are
# private to this script and end with it.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
results=${1:-out/tunnel}

lacking=""
for tool in ip unshare wg; do command -v "$tool" >/dev/null || lacking+=" $tool"; done
if [ "$(id -u)" != 0 ] || [ -n "$lacking" ]; then
  echo "This example makes network namespaces and a WireGuard tunnel, for which it needs root and ip, unshare and wg (iproute2, util-linux, wireguard-tools)." >&2
  exit 2
fi
if [ -z "${IN_NAMESPACE:-}" ]; then
  IN_NAMESPACE=1 exec unshare --mount --net --pid --fork --kill-child --mount-proc "${BASH_SOURCE[0]}" "$@"
fi

mkdir -p "$results" /run/netns /run/wireguard
out=$(cd "$results" && pwd)
mount -t tmpfs netns /run/netns
mount -t tmpfs wireguard /run/wireguard
keys=$(mktemp -d)
trap 'rm -rf "$keys"' EXIT

# The network outside: two routers and a wire between them.
ip netns add router-berlin
ip netns add router-lima
ip link add outer netns router-berlin type veth peer name outer netns router-lima
ip -n router-berlin address add 192.0.2.1/24 dev outer
ip -n router-lima address add 192.0.2.2/24 dev outer
for site in berlin lima; do
  ip -n router-$site link set outer up
  (umask 077 && wg genkey >"$keys/$site")
done

# make_tunnel SITE ADDRESS PEER PEER_ADDRESS PEER_ENDPOINT: create the interface at the router, where its UDP socket stays,
# and move it to the site.
make_tunnel() {
  local site=$1 address=$2 peer=$3 peer_address=$4 endpoint=$5
  if ! ip -n "router-$site" link add "wg-$site" type wireguard 2>/dev/null; then
    if ! command -v wireguard-go >/dev/null; then
      echo "This kernel has no WireGuard, so the example needs the program wireguard-go." >&2
      exit 2
    fi
    ip netns exec "router-$site" wireguard-go "wg-$site" >/dev/null 2>&1
  fi
  ip netns exec "router-$site" wg set "wg-$site" listen-port 51820 private-key "$keys/$site" \
    peer "$(wg pubkey <"$keys/$peer")" allowed-ips "$peer_address/32" endpoint "$endpoint:51820" persistent-keepalive 25
  ip netns add "$site"
  ip -n "router-$site" link set "wg-$site" netns "$site"
  ip -n "$site" address add "$address/24" dev "wg-$site"
  ip -n "$site" link set lo up
  ip -n "$site" link set "wg-$site" mtu 1420 up
}
make_tunnel berlin 10.77.0.1 lima 10.77.0.2 192.0.2.2
make_tunnel lima 10.77.0.2 berlin 10.77.0.1 192.0.2.1

# Capture the traffic outside and, for comparison, inside the tunnel.
rm -f "$out"/*.bytes "$out"/*.ready "$out"/*.pt
ip netns exec router-berlin "$python" "$here/capture.py" outer "$out/outside.bytes" &
captures=$!
ip netns exec berlin "$python" "$here/capture.py" wg-berlin "$out/inside.bytes" &
captures+=" $!"
until [ -e "$out/outside.ready" ] && [ -e "$out/inside.ready" ]; do sleep 0.1; done

# train SITE RANK: the command that each site would run on its own machine.
train() {
  SITE=$1 GLOO_SOCKET_IFNAME=wg-$1 TORCH_CPP_LOG_LEVEL=ERROR OMP_NUM_THREADS=1 \
    ip netns exec "$1" "$python" -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank "$2" \
    --master-addr 10.77.0.1 --master-port 29500 "$here/train.py" "$here/sites.txt" "$out"
}
train berlin 0 &
first=$!
train lima 1
wait $first

sleep 0.5
kill $captures
rm -f "$out"/*.ready
"$python" "$here/compare.py" "$out"
