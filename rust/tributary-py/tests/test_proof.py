"""The example `proof`, on CPUs and at tiny sizes: threads over host, processes over gloo."""

import contextlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise unittest.SkipTest(f"the example proof is not tested: {error}") from None

FOLDER = Path(__file__).resolve().parents[1] / "examples" / "proof"
sys.path.insert(0, str(FOLDER))

import methods  # noqa: E402
import proof  # noqa: E402
import proof_report  # noqa: E402
import text  # noqa: E402
import train  # noqa: E402


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def sent_at_last(run: dict[str, Any]) -> int:
    """Bytes from the last validation but one to the last."""
    before, last = (point["bytes_sent"] for point in run["points"][-2:])
    return int(last - before)


class Proof(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = Path(folder.name) / "results.json"

    def start(self, *options: str, **variables: str) -> "subprocess.Popen[str]":
        command = [sys.executable, str(FOLDER / "proof.py"), "--size", "tiny", "--out", str(self.out)]
        return subprocess.Popen(
            [*command, *options],
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def train(self, ranks: int, *options: str) -> list[str]:
        """What each process has printed; one process of threads, or a process for each rank."""
        port = str(free_port())
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
        started = [
            self.start(*options, RANK=str(i), LOCAL_RANK=str(i), **place) for i in range(ranks)
        ]
        said = [one.communicate(timeout=100)[0] for one in started]
        self.assertEqual([one.returncode for one in started], [0] * ranks, said)
        return said

    def report(self, *options: str) -> str:
        with contextlib.redirect_stdout(io.StringIO()) as said:
            proof_report.main([str(self.out), *options])
        return said.getvalue()

    def rows(self) -> dict[tuple[str, int], Any]:
        runs = json.loads(self.out.read_text())["runs"]
        return {(run["method"], run["seed"]): run for run in runs}

    def check(self, run: dict[str, Any], steps: int) -> None:
        first, last = run["points"][0], run["points"][-1]
        self.assertEqual((first["step"], last["step"]), (0, steps))
        self.assertLess(last["loss"], first["loss"], run["method"])
        self.assertEqual(last["loss"], run["final_loss"])
        self.assertEqual(last["bytes_sent"], run["bytes_sent"])
        self.assertEqual(first["bytes_sent"], 0)
        self.assertTrue(run["ranks_equal"], run["method"])
        self.assertGreater(run["step_ms"], 0)

    def test_digits(self) -> None:
        """Calls with methods of different backends make one file and one report."""
        steps = ("--task", "digits", "--steps", "60", "--every", "30")
        sparse = "topka-0.01,chunked-0.01,oktopk-0.05,shared-0.01"
        self.train(2, *steps, "--backend", "gloo", "--methods", "ddp,powersgd")
        self.train(1, *steps, "--backend", "host", "--methods", f"dense,{sparse}", "--seeds", "1,2")
        rows = self.rows()
        expected = [("ddp", 1), ("powersgd", 1), ("dense", 1), ("dense", 2)]
        self.assertEqual(list(rows), [*expected, *((name, 1) for name in sparse.split(","))])
        for run in rows.values():
            self.check(run, 60)
        dense = rows["dense", 1]
        # The same training, but for the order of two numbers in a sum.
        self.assertAlmostEqual(dense["final_loss"], rows["ddp", 1]["final_loss"], delta=0.02)
        self.assertEqual(dense["bytes_sent"], 60 * 4 * dense["parameters"])
        self.assertEqual(rows["ddp", 1]["bytes_sent"], dense["bytes_sent"])
        # 10 steps of all; then of matrices of 16 x 72 and 32 x 256 what 4 x (rows + columns) are.
        uncompressed = dense["parameters"] - 16 * 72 - 32 * 256
        later = uncompressed + 4 * (16 + 72) + 4 * (32 + 256)
        self.assertEqual(
            rows["powersgd", 1]["bytes_sent"], 4 * (10 * dense["parameters"] + 50 * later)
        )
        self.assertLess(10 * rows["topka-0.01", 1]["bytes_sent"], dense["bytes_sent"])
        self.check_report(self.report("--dense", str(self.out), "--network", str(self.out)))

    def check_report(self, found: str) -> None:
        for line in (r"\| dense, seed 2 ", r"\| powersgd, seed 1 .* computed ", r"dense: mean \d",
                     r"topka-0.01: (inside|outside)", r"Judged by dense of results.json",
                     r"\| dense +\| 60 ", r"\| shared-0.01 +\| (30|60|never) "):
            self.assertRegex(found, line)
        self.assertNotIn(" NO ", found)

    def test_text(self) -> None:
        steps = ("--task", "text", "--steps", "24", "--every", "12", "--warmup", "2")
        self.train(1, *steps, "--backend", "host", "--methods", "dense,topka-0.01", "--seeds", "1",
                   "--density-warmup", "4")
        rows = self.rows()
        for run in rows.values():
            self.check(run, 24)
        # 25 % in the first 4 steps of 24, then 6.25 %, then 1.56 %, then 1 %.
        share = rows["topka-0.01", 1]["bytes_sent"] / rows["dense", 1]["bytes_sent"]
        self.assertGreater(share, 0.09)
        # In the last 12 steps 1 %, and an entry is of two words.
        topka, dense = (sent_at_last(rows[name, 1]) for name in ("topka-0.01", "dense"))
        self.assertEqual(dense, 12 * 4 * rows["dense", 1]["parameters"])
        self.assertLess(topka, 0.03 * dense)


class Parts(unittest.TestCase):
    def test_a_file_is_for_training_or_for_validation(self) -> None:
        held = [text.is_validation(f"package/module_{i}.py") for i in range(2000)]
        self.assertTrue(60 < sum(held) < 140, sum(held))
        self.assertEqual(held[:20], [text.is_validation(f"package/module_{i}.py") for i in range(20)])

    def test_density_warmup(self) -> None:
        found = [methods.warmed(0.01, stage) for stage in range(4)]
        self.assertEqual(found, [0.25, 0.0625, 0.015625, 0.01])

    def test_what_powersgd_sends_of_a_matrix(self) -> None:
        """Two matrices of rank 4 if they are less than half of it, or else all of it."""
        for shape, expected in (
            ((100, 50), 4 * (100 + 50)),
            ((16, 4, 3, 3), 4 * (16 + 36)),
            ((17, 16), 4 * (17 + 16)),
            ((16, 16), 16 * 16),
            ((3, 1000), 3000),
            ((7,), 7),
        ):
            self.assertEqual(methods.low_rank([torch.Size(shape)]), expected, shape)

    def test_the_time_of_a_step_is_a_median_without_the_first_block(self) -> None:
        """And the last block may be shorter than the others."""
        self.assertEqual(train.step_seconds([(9.0, 4), (1.0, 4), (0.5, 1)]), 0.375)
        self.assertEqual(train.step_seconds([(9.0, 4)]), 2.25)

    def test_what_is_there_is_not_trained_again(self) -> None:
        runs = [{"method": "dense", "seed": 1}, {"method": "ddp", "seed": 1}]
        found = proof.left([("dense", 1), ("dense", 2), ("ddp", 1), ("topka-0.01", 1)], runs)
        self.assertEqual(found, [("dense", 2), ("topka-0.01", 1)])

    def test_a_file_has_one_setting(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "one.json"
            self.assertEqual(proof.read(path, {"task": "text"})["runs"], [])
            proof.write(path, {"setting": {"task": "text", "ranks": 2}, "runs": [1]})
            self.assertEqual(proof.read(path, {"task": "text", "ranks": 2})["runs"], [1])
            with self.assertRaisesRegex(SystemExit, "is of another setting: ranks$"):
                proof.read(path, {"task": "text", "ranks": 4})

    def test_ranks_are_merged(self) -> None:
        def rank(loss: float, *sent: int) -> dict[str, Any]:
            points = [{"loss": loss, "bytes_sent": each} for each in sent]
            return {"points": points, "step_ms": loss, "seconds": loss, "digest": loss}

        found = proof.merge([rank(1.0, 0, 5, 9), rank(2.0, 0, 6, 8)])
        self.assertEqual([point["bytes_sent"] for point in found["points"]], [0, 6, 9])
        self.assertEqual([point["loss"] for point in found["points"]], [1.0] * 3)
        self.assertEqual((found["step_ms"], found["bytes_sent"]), (2.0, 9))
        self.assertFalse(found["ranks_equal"])

    def test_mistakes(self) -> None:
        for name in ("bf16", "best-0.01", "topka-2"):
            with self.assertRaisesRegex(SystemExit, f"no method {name} on host"):
                methods.check(name, "host")
        with self.assertRaisesRegex(SystemExit, "no method dense on gloo"):
            methods.check("dense", "gloo")

    def test_bytes_of_all_steps_and_of_the_last_interval(self) -> None:
        def cells(source: str, *sent: int | None) -> list[str]:
            run = training("topka", 4, (3.0, 2.0, 1.0))
            run["bytes_source"] = source
            for point, bytes_ in zip(run["points"], sent):
                point["bytes_sent"] = bytes_
            at = proof_report.HEAD.index("MB sent a step and rank")
            return proof_report.row_of(run, None)[at : at + 2]

        self.assertEqual(cells("counted", 0, 18_000_000, 20_000_000), ["2.5", "0.5"])
        self.assertEqual(cells("computed for a ring", 0, 4_000_000, 8_000_000), ["1 computed", "1"])
        self.assertEqual(cells("not known", None, None, None), ["not known", ""])

    def test_verdicts(self) -> None:
        def run(method: str, loss: float | None) -> dict[str, Any]:
            return {"method": method, "final_loss": loss, "step_ms": 2.0}

        dense = proof_report.dense_of([run("dense", 1.0), run("dense", 1.5), run("ddp", 9.0)])
        assert dense is not None
        found = [dense.judge(loss) for loss in (1.2, 1.75, 0.5, None)]
        expected = ["inside", "outside: 0.2500 above", "outside: 0.5000 below, which is better"]
        self.assertEqual(found, [*expected, "diverged"])
        self.assertIsNone(proof_report.dense_of([run("dense", 1.0)]))


def training(name: str, every: int, losses: tuple[float, ...]) -> dict[str, Any]:
    """Its losses at validations. A step of dense takes 2 ms, and others' take 1 ms."""
    method, _, seed = name.partition("_")
    step_ms = 2.0 if method == "dense" else 1.0
    points: list[dict[str, Any]] = [
        {"step": i * every, "seconds": i * every * step_ms / 1e3, "loss": loss}
        for i, loss in enumerate(losses)
    ]
    for point in points:
        point.update(accuracy=0.5, bytes_sent=None)
    return {
        "method": method,
        "seed": int(seed or 1),
        "points": points,
        "final_loss": losses[-1],
        "step_ms": step_ms,
        "seconds": points[-1]["seconds"],
        "bytes_source": "not known",
        "parameters": 7,
        "ranks_equal": True,
    }


def made_up(name: str, steps: int, every: int, **losses: tuple[float, ...]) -> proof_report.File:
    setting = {
        "task": "text",
        "size": "tiny",
        "data": "of the sky",
        "ranks": 2,
        "plan": {"steps": steps, "clip": 0.1},
        "environment": {},
        "torch": "9.9",
        "device": "CPU",
    }
    runs = [training(one, every, its) for one, its in losses.items()]
    return proof_report.File(name, setting, runs)


def rows_of(report: str) -> dict[str, list[str]]:
    """The cells of all rows of all tables, by the first; of the last such row."""
    lines = [line[1:-1].split("|") for line in report.splitlines() if line.startswith("|")]
    return {line[0].strip(): [cell.strip() for cell in line[1:]] for line in lines}


class Reports(unittest.TestCase):
    """Of files whose numbers are easy to compute by hand."""

    def setUp(self) -> None:
        self.short = made_up("short.json", 100, 50, dense_1=(4.0, 2.0, 1.0), dense_2=(4.0, 3.0, 2.0))
        sparse = {"topka": (4.0, 1.6, 1.5, 1.2), "oktopk": (4.0, 3.5, 3.0, 2.5)}
        self.long = made_up("long.json", 300, 100, **sparse)

    def test_dense_of_another_file(self) -> None:
        found = proof_report.report(self.long, self.short)
        rows = rows_of(found)
        self.assertEqual(rows["topka, seed 1"][2:4], ["inside", "step 200, 0.2 s"])
        self.assertEqual(rows["oktopk, seed 1"][2:4], ["outside: 0.5000 above", "never"])
        for line in (
            "Judged by dense of short.json: 2 ranks of CPU, torch 9.9, no NCCL variables; steps 100, "
            "clip 0.1.\n",
            "* dense: mean 1.5000, spread 1.0000 to 2.0000",
            "* topka: inside; 2.00 x dense's speed",
        ):
            self.assertIn(line, found)

    def test_a_report_of_one_file_is_judged_by_itself(self) -> None:
        found = proof_report.report(self.short, self.short)
        self.assertNotIn("Judged by", found)
        self.assertEqual(rows_of(found)["dense, seed 1"][2:4], ["", "step 100, 0.2 s"])
        self.assertIn("nothing is judged", proof_report.report(self.long, self.long))

    def test_dense_of_another_network(self) -> None:
        self.short.setting["environment"] = {"NCCL_NET": "Socket", "NCCL_P2P_DISABLE": "1"}
        found = proof_report.report(self.long, self.short)
        self.assertIn("NCCL_NET=Socket NCCL_P2P_DISABLE=1; steps 100", found)
        self.assertIn(" Its times are not of here.", found)

    def sockets(self, **step_ms: float) -> proof_report.File:
        """A few steps of each method, over another network."""
        file = made_up("sockets.json", 10, 5, **{name: (4.0, 3.9, 3.8) for name in step_ms})
        for run, ms in zip(file.runs, step_ms.values()):
            run["step_ms"] = ms
        file.setting["environment"] = {"NCCL_NET": "Socket"}
        return file

    def test_times_over_another_network(self) -> None:
        """Of one file: dense of 100 steps, and topka, which is there after 50."""
        self.short.runs.append(training("topka", 50, (4.0, 1.5, 1.4)))
        self.short.runs.append(training("bf16", 50, (4.0, 1.5, 1.4)))
        network = self.sockets(dense_1=40.0, dense_2=60.0, topka=8.0, powersgd=1.0)
        found = proof_report.report(self.short, self.short, network)
        rows = rows_of(found)
        self.assertEqual(rows["dense"], ["100", "2.00", "50.00", "0.2", "5.0"])
        self.assertEqual(rows["topka"], ["50", "1.00", "8.00", "0.1", "0.4"])
        self.assertFalse({"bf16", "powersgd"} & set(rows))
        self.assertIn("Here: 2 ranks of CPU, torch 9.9, no NCCL variables. There, with the step times of "
                      "sockets.json: 2 ranks of CPU, torch 9.9, NCCL_NET=Socket.\n", found)

    def test_times_to_the_dense_of_another_file(self) -> None:
        """Steps and times of dense here are of the yardstick, and there of the network's file."""
        network = self.sockets(dense=50.0, topka=8.0, oktopk=9.0)
        rows = rows_of(proof_report.report(self.long, self.short, network))
        self.assertEqual(rows["dense"], ["100", "2.00", "50.00", "0.2", "5.0"])
        self.assertEqual(rows["topka"], ["200", "1.00", "8.00", "0.2", "1.6"])
        self.assertEqual(rows["oktopk"], ["never", "1.00", "9.00", "", ""])

    def test_times_without_a_yardstick(self) -> None:
        found = proof_report.report(self.long, self.long, self.sockets(topka=8.0))
        self.assertIn("nothing is judged", found)
        self.assertNotIn("Time to", found)

    def test_times_of_another_task(self) -> None:
        network = self.sockets(dense=50.0)
        network.setting.update(task="digits", ranks=4)
        with self.assertRaisesRegex(SystemExit, "^sockets.json and short.json .*: other task, ranks$"):
            proof_report.report(self.short, self.short, network)

    def test_dense_of_another_task(self) -> None:
        for key, other in (("task", "digits"), ("size", "full"), ("data", "of seas"), ("ranks", 4)):
            file = self.short._replace(setting={**self.short.setting, key: other})
            with self.assertRaisesRegex(
                SystemExit, f"^short.json and long.json do not fit: other {key}$"
            ):
                proof_report.report(self.long, file)
