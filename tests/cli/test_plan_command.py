"""`gossamer plan`: what the messages of every method cost."""

import json
import shlex


def test_the_command(gossamer):
    own = "motef:compress=top-k:share=0.01"
    options = shlex.split("--parameters 25.6M --sites 8 --link 100Mbit/s --step 0.4s --every 10 --method")
    out, _ = gossamer("plan", *options, own)
    shown = [line.split()[0] for line in out.splitlines() if line]
    assert shown[1] == own
    assert {"momentum-tracking", "dsgdm", "motef", "k-gt", "all-reduce-sgdm"} <= set(shown)
    assert "not on this graph: d2" in out
    told = json.loads(gossamer("plan", *options, own, "--json")[0])
    assert told["momentum-tracking"]["bytes"] == 4 * 4 * 25.6e6
    assert told[own]["coding"] > 0 == told["momentum-tracking"]["coding"]
    assert told[own]["waiting"] == 0 < told["momentum-tracking"]["waiting"]
    _, err = gossamer("plan", "--method", "d2", code=2)
    assert "weights='lazy'" in err


def test_weights_let_more_methods_in(gossamer):
    told = json.loads(gossamer("plan", "--parameters", "1k", "--weights", "lazy", "--json")[0])
    assert {"d2", "edm", "led"} <= told.keys()
    assert told["led"]["bytes"] == told["dsgd"]["bytes"] == 2 * 4 * 1000
    assert told["led"]["every"] == 5
