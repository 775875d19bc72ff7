"""A word that a command does not take is told with the command, the word, the rule and the way out."""

from __future__ import annotations

import pytest
from tests.cli.test_commands import weft


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("all_reduce_perf -b 8", "there is no command 'all_reduce_perf': `weft nccl all_reduce SPEC` says what it"),
        ("osu_bw star:2", "there is no command 'osu_bw': `weft osu osu_bw SPEC` says what it would print\n"),
        ("ibstat", "there is no command 'ibstat': `weft diag ibstat` is it\n"),
        ("show dgx-h100", "dgx-h100 is a server, and a fabric has some: star:hosts=2,server=dgx-h100\n"),
        (
            "catalog p5",
            "there is no entry in the catalog 'p5'\n  `weft catalog` lists them all. Of p5 speak EFA-4x100, efa-400.\n",
        ),
    ],
)
def test_a_word_of_elsewhere_is_told_where_it_is_here(words, said):
    done = weft(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"weft: {said}")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "degrade leaf2/6 1e-9",
            "degrade: '1e-9' is one word too many; "
            "a value stands behind its option (--ber, --flaps, --to, --drain, --lab)\n"
            "  It is `weft degrade NAME [OPTIONS]`",
        ),
        ("show star:4 h1 h2 h3", "show: 'h2', 'h3' are words too many\n  It is `weft show SPEC [NAME] [OPTIONS]`"),
        ("show", "show: SPEC is missing: a topology, `superpod:su=1`, or the path of a file\n  It is `weft show SPEC"),
        ("degrade leaf2/6 --ber", "degrade: --ber needs a value\n"),
        ("degrade leaf2/6 --ber x", "degrade: --ber 'x' is no number\n"),
        ("sim star:4 --seed 1.5", "sim: Invalid value for --seed: '1.5' is no whole number\n"),
        ("sim star:4 --sead 1", "sim: there is no option --sead. Did you mean --seed?\n"),
        ("show -z", "show: SPEC '-z': there is no such option\n"),
        ("tenants plan a b", "tenants plan: 'b' is one word too many; a value stands behind its option (--lab, "),
        ("scenario qos --nosuch", "scenario qos: there is no option --nosuch."),
        ("nccl all_reduce star:2 -G 4", "nccl: -G is no option here: no launch is captured"),
        ("osu latency star:2 -np 4", "osu: -np is no option here: there are --ppn processes on each of --servers"),
        ("shwo", 'Unknown command "shwo". Did you mean "show"?'),
    ],
)
def test_a_wrong_word_is_told_with_the_rule_and_the_way_out(words, said):
    done = weft(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"weft: {said}")
    assert "--help`" in done.stderr
    assert len(done.stderr.splitlines()) == 2
