"""Container, service, manifest, alerts and the page that explains them, held against what the program does."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.cli.test_help import command_in
from tests.deploy.dockerfile import Stage, read, words
from yaie_engine import LLM
from yaie_magic import cli
from yaie_magic.server import ServerConfig
from yaie_magic.server.background import BackgroundServer
from yaie_magic.server.ledger import OUTCOMES
from yaie_magic.settings import engine_settings, server_settings

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "serving.md").read_text()
SECRET_NAMES = re.compile(r"key|token|secret|passw", re.IGNORECASE)


@pytest.fixture(scope="module")
def image() -> list[Stage]:
    return read(ROOT / "Dockerfile")[1]


@pytest.fixture(scope="module")
def server() -> Iterator[BackgroundServer]:
    with LLM("tiny", num_blocks=64) as llm:
        found = BackgroundServer(llm, ServerConfig(port=0, access_log="off"))
        yield found
        found.stop()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("YAIE_")]:
        monkeypatch.delenv(name)


# ---- the image


def test_two_stages_on_a_pinned_base_and_a_user_without_rights(image: list[Stage]) -> None:
    build, final = image
    assert build.base == final.base and re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", final.base)
    assert build.name == "build" and not final.name
    assert final.all("COPY") == ["--from=build /opt/yaie /opt/yaie"]
    (user,) = final.all("USER")
    assert all(int(part) >= 1000 for part in user.split(":"))
    after = [name for name, _ in final.instructions[final.instructions.index(("USER", user)) :]]
    assert not {"RUN", "COPY", "ADD"} & set(after)
    assert "pip" not in "".join(final.all("RUN"))


def test_the_image_holds_no_secret_and_no_weights_of_others(image: list[Stage]) -> None:
    for stage in image:
        assert not [name for name in stage.environment if SECRET_NAMES.search(name)]
        assert not [rest for rest in stage.all("ARG") if SECRET_NAMES.search(rest)]
    assert image[1].environment["HF_HUB_OFFLINE"] == "1"


def test_only_what_is_copied_reaches_the_build(image: list[Stage]) -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    copied = {word for rest in image[0].all("COPY") for word in rest.split()[:-1]}
    assert copied == allowed and all((ROOT / name).exists() for name in allowed)
    packages = {path.split("/")[0] for path in _wheel_packages()}
    assert packages <= copied and "**/.env*" in rules


def _wheel_packages() -> list[str]:
    import tomllib

    text = (ROOT / "pyproject.toml").read_text()
    found: list[str] = tomllib.loads(text)["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    return found


def test_what_it_runs_is_understood(image: list[Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    final = image[1]
    (entry,), (command,) = final.all("ENTRYPOINT"), final.all("CMD")
    assert words(entry) == ["yaie"]
    name, *rest = words(command)
    given = cli.command(name).parser().parse(rest)
    assert given["model"] == "tiny"
    for variable, value in final.environment.items():
        if variable.startswith("YAIE_"):
            monkeypatch.setenv(variable, value)
    config = server_settings(None, {})
    assert not config.loopback and str(config.port) in final.all("EXPOSE")
    with pytest.raises(Exception, match="YAIE_API_KEY"):
        config.check_key()


def test_the_health_check_says_how_the_server_is(image: list[Stage], server: BackgroundServer) -> None:
    (rest,) = image[1].all("HEALTHCHECK")
    assert "--start-period=" in rest
    program, *arguments = words(rest)
    assert program == "python"
    port = server.url.rpartition(":")[2]
    for number, ok in ((port, True), ("9", False)):
        environment = {**os.environ, "YAIE_PORT": number, "http_proxy": "http://127.0.0.1:9"}
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, check=False, timeout=30
        )
        assert (done.returncode == 0) is ok


# ---- systemd


def unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / "yaie.service").read_text().splitlines():
        name, mark, value = line.partition("=")
        if mark and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_the_unit_runs_what_there_is_and_keeps_its_hands_off_the_key() -> None:
    entries = unit()
    (line,) = entries["ExecStart"]
    program, name, *rest = shlex.split(line)
    assert program.endswith("/yaie")
    given = cli.command(name).parser().parse(rest)
    assert given["config"] == "/etc/yaie/serve.yaml"
    assert not SECRET_NAMES.search(line + "".join(entries["Environment"]))
    assert entries["RestartPreventExitStatus"] == [str(cli.USAGE)] and entries["Restart"] == ["on-failure"]
    assert float(entries["TimeoutStopSec"][0]) > ServerConfig().shutdown_timeout
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "DynamicUser", "RestrictNamespaces"):
        assert entries[name] == ["yes"]
    assert entries["ProtectSystem"] == ["strict"] and entries["CapabilityBoundingSet"] == [""]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "yaie.service").read_text().replace("/opt/yaie/bin/yaie", sys.executable)
    path = tmp_path / "yaie.service"
    path.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert "yaie.service" not in done.stderr + done.stdout and done.returncode == 0


# ---- Kubernetes


def manifests() -> dict[str, dict[str, Any]]:
    found = yaml.safe_load_all((DEPLOY / "kubernetes" / "yaie.yaml").read_text())
    return {entry["kind"]: entry for entry in found}


def test_the_deployment_is_locked_down_and_probed() -> None:
    pod = manifests()["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert (
        pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["seccompProfile"]["type"] == "RuntimeDefault"
    )
    inside = container["securityContext"]
    assert inside["readOnlyRootFilesystem"] and not inside["allowPrivilegeEscalation"]
    assert inside["capabilities"] == {"drop": ["ALL"]}
    (key,) = container["env"]
    assert key["name"] == "YAIE_API_KEY" and set(key["valueFrom"]) == {"secretKeyRef"} and "Secret" not in manifests()
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": "http"}
    startup = container["startupProbe"]
    assert startup["periodSeconds"] * startup["failureThreshold"] >= ServerConfig().start_timeout
    assert pod["terminationGracePeriodSeconds"] > ServerConfig().shutdown_timeout
    assert {"requests", "limits"} <= set(container["resources"])


def test_the_parts_of_the_manifest_fit_each_other_and_the_image(image: list[Stage], tmp_path: Path) -> None:
    found = manifests()
    spec = found["Deployment"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert found["Service"]["spec"]["selector"].items() <= labels.items()
    assert found["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"] == "http"
    assert str(container["ports"][0]["containerPort"]) in image[1].all("EXPOSE")
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in spec["template"]["spec"]["volumes"]}
    assert mounted["cache"] == image[1].environment["YAIE_CACHE_DIR"]
    assert str(spec["template"]["spec"]["securityContext"]["runAsUser"]) == image[1].all("USER")[0].partition(":")[0]
    given = cli.command(container["args"][0]).parser().parse(container["args"][1:])
    assert given["config"] == f"{mounted['config']}/serve.yaml"
    for name, text in found["ConfigMap"]["data"].items():
        (tmp_path / name).write_text(text)
        engine_settings(str(tmp_path / name), {})
        assert server_settings(str(tmp_path / name), {}).access_log == "json"


# ---- metrics


def names_in(metrics: str) -> set[str]:
    return set(re.findall(r"^(yaie:\w+)", metrics, re.MULTILINE))


def test_rules_and_page_speak_of_metrics_that_there_are(server: BackgroundServer) -> None:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as http:
        assert http.post("/generate", json={"prompt": "x", "max_tokens": 3}).status_code == 200
        shown = http.get("/metrics").text
    names = names_in(shown)
    rules = [rule for group in _alerts()["groups"] for rule in group["rules"]]
    for rule in rules:
        used = set(re.findall(r"yaie:\w+", rule["expr"]))
        assert used <= names and (used or "up{" in rule["expr"])
        assert set(re.findall(r'outcome="(\w+)"', rule["expr"])) <= set(OUTCOMES)
        assert rule["annotations"]["summary"] and rule["labels"]["severity"] in ("page", "ticket", "info")
    told = set(re.findall(r"`(yaie:\w+)(?:\{outcome\})?`", PAGE))
    families = {re.sub(r"_(bucket|count|sum|created)$", "", name) for name in names}
    assert told == families
    assert {rule["alert"] for rule in rules} == set(re.findall(r"\bYaie[A-Z]\w+", PAGE))


def _alerts() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())
    return found


def test_the_scrape_configuration_uses_the_key_and_the_rules() -> None:
    found = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yaml").read_text())
    (job,) = found["scrape_configs"]
    assert job["job_name"] == "yaie" and job["metrics_path"] == "/metrics"
    assert job["authorization"]["type"] == "Bearer" and "credentials" not in job["authorization"]
    assert all((DEPLOY / "prometheus" / name).exists() for name in found["rule_files"])


# ---- the page


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```", PAGE, re.MULTILINE | re.DOTALL)
    return [re.sub(rf"^{indent}", "", text, flags=re.MULTILINE) for indent, text in found]


LINES = [line for text in blocks("sh") for line in text.splitlines()]


@pytest.mark.parametrize("line", LINES)
def test_every_command_on_the_page_is_understood(line: str) -> None:
    ours = command_in(line) if re.search(r"(^|\s)yaie (\w)", line) else []
    if line.startswith("docker run"):
        after = re.split(r"yaie:\S+\s*", line)[-1]
        ours = shlex.split(after)
    if ours:
        cli.command(ours[0]).parser().parse(ours[1:])
    elif "--json" in line:
        json.loads(shlex.split(line)[-1])
    else:
        assert shlex.split(line)[0] in ("docker", "kubectl", "curl")


def test_the_settings_on_the_page_and_beside_it_are_right(tmp_path: Path) -> None:
    path = tmp_path / "serve.yaml"
    (text,) = blocks("yaml")
    for content in (text, (DEPLOY / "serve.yaml").read_text()):
        path.write_text(content)
        assert engine_settings(str(path), {}).num_blocks == 2048
        assert server_settings(str(path), {}).access_log == "json"


def test_links_and_named_options_of_the_page_exist() -> None:
    for target in re.findall(r"\]\((\.\.?/[^)]+)\)", PAGE):
        assert (ROOT / "docs" / target).resolve().exists(), target
    flags = {flag for entry in cli.command("serve").parser().options for flag in entry.all_flags}
    told = set(re.findall(r"`(--[a-z-]+)", re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)))
    assert told <= flags


# ---- checkers that are heavy or rarely there


@pytest.mark.full
def test_hadolint_finds_nothing() -> None:
    program = shutil.which("hadolint") or pytest.skip("no hadolint here")
    done = subprocess.run([program, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.full
def test_the_manifest_fits_the_schema_of_kubernetes() -> None:
    program = shutil.which("kubernetes-validate") or pytest.skip("no kubernetes-validate here")
    path = DEPLOY / "kubernetes" / "yaie.yaml"
    done = subprocess.run([program, "--strict", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full
def test_the_rules_are_promql() -> None:
    promql = pytest.importorskip("promql_parser", reason="no promql-parser here")
    for group in _alerts()["groups"]:
        for rule in group["rules"]:
            promql.parse(rule["expr"])
