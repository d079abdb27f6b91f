"""Dockerfile, compose.yaml and env.example agree with the code and with each other."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509

from deploy import certificates
from deploy.postgres import API_ROLE, WORKER_ROLE
from deploy.temporal import FLAGS
from settings import OF_THE_WORKER, ROOT, VARIABLES, Settings, field_of

DEPLOY = ROOT / "deploy"
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
EXAMPLE = (DEPLOY / "env.example").read_text()
ONLY_COMPOSE = {"POSTGRES_PASSWORD", "API_DATABASE_PASSWORD", "WORKER_DATABASE_PASSWORD"}
GENERATED = "temporal/"  # generated in deploy/ by deploy/certificates.py
# a digest or a complete version: PostgreSQL's has two numbers, the others have three
EXACT = re.compile(r"@sha256:[0-9a-f]{64}$|^postgres:\d+\.\d+$|:\d+\.\d+\.\d+(-[\w-]+)?$")
OURS = ("api", "worker", "setup")


def instructions() -> list[tuple[str, str]]:
    text = re.sub(r"^#.*\n", "", (DEPLOY / "Dockerfile").read_text(), flags=re.M).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def example() -> dict[str, str]:
    """Return name → value, commented out or not; assert that each follows a line that explains it."""
    found: dict[str, str] = {}
    lines = EXAMPLE.splitlines()
    for before, line in zip([""] + lines, lines, strict=False):
        if match := re.fullmatch(r"(?:# )?([A-Z][A-Z_]+)=(.*)", line):
            assert re.fullmatch(r"# [^=]+", before), f"{match[1]} is not explained"
            assert match[1] not in found, f"{match[1]} twice"
            found[match[1]] = match[2]
    return found


def test_env_example_lists_exactly_what_is_read() -> None:
    listed = example().keys() - ONLY_COMPOSE
    assert {name for name in listed if not name.startswith("TEMPORAL_")} == {
        name for name in VARIABLES if not name.startswith("TEMPORAL_")
    }
    assert {"TEMPORAL_ADDRESS", "TEMPORAL_NAMESPACE", "TEMPORAL_API_KEY", "TEMPORAL_TLS", "TEMPORAL_PROFILE"} <= listed


def test_env_example_shows_the_defaults() -> None:
    shown = example()
    for name in VARIABLES:
        default = getattr(Settings(), field_of(name))
        if isinstance(default, Path):
            default = default.relative_to(ROOT)
        if isinstance(default, tuple):
            default = ",".join(default)
        text = str(default).lower() if isinstance(default, bool) else str(default)
        assert shown[name] == ("" if default is None else text), name


def test_env_example_contains_no_secret_and_sets_nothing() -> None:
    active = [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")]
    assert active == [f"{name}=" for name in ("POSTGRES_PASSWORD", "API_DATABASE_PASSWORD", "WORKER_DATABASE_PASSWORD")]


def test_image_installs_from_hashes_requires_keys_and_runs_under_its_own_account() -> None:
    assert EXACT.search(instructions()[0][1])
    installs = [argument for name, argument in instructions() if name == "RUN" and "pip install" in argument]
    assert installs and all("--require-hashes -r requirements.txt" in install for install in installs)
    steps = dict(instructions())
    assert steps["USER"] == "errand"
    env = dict(pair.split("=") for pair in shlex.split(steps["ENV"]))
    assert env["ERRAND_PORT"] == steps["EXPOSE"]
    assert env["ERRAND_REQUIRE_KEYS"] == "true"
    assert env.keys() <= VARIABLES.keys()


def test_compose_has_the_whole_system() -> None:
    assert {"api", "worker", "temporal", "temporal-ui", "postgresql", "setup"} <= SERVICES.keys()
    for name, service in SERVICES.items():
        image = service["image"]
        assert image == "errand" or EXACT.search(image), f"{name}: {image} has no exact version"
        for needed, how in service.get("depends_on", {}).items():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[needed], needed
            elif how["condition"] == "service_completed_successfully":
                assert SERVICES[needed]["restart"].startswith("on-failure"), needed
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), f"{name} is open to other machines"
    for name in ("api", "temporal", "postgresql"):
        assert SERVICES[name]["healthcheck"]["test"]


def test_compose_keeps_temporal_and_the_databases_without_a_way_out() -> None:
    assert COMPOSE["networks"] == {"databases": {"internal": True}, "temporal": {"internal": True}, "outside": None}
    for name in ("postgresql", "temporal", "temporal-keys", "temporal-ui", "temporal-schema", "setup"):
        assert "outside" not in SERVICES[name]["networks"] and "ports" not in SERVICES[name], name
    assert SERVICES["postgresql"]["networks"] == ["databases"]
    for name in ("temporal-ui", "temporal-ui-guard", "temporal-keys"):
        assert "databases" not in SERVICES[name]["networks"], name
    for name, service in SERVICES.items():
        assert set(service["networks"]) <= COMPOSE["networks"].keys(), name
        assert "network_mode" not in service and "privileged" not in service, name


def test_compose_confines_every_process() -> None:
    for name, service in SERVICES.items():
        assert service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"], name
        assert ("cap_add" in service) is (name == "postgresql"), name
        # PostgreSQL creates its socket in a folder of its image
        scratch = ["/tmp", "/run/postgresql"] if name == "postgresql" else ["/tmp"]
        assert service["read_only"] is True and service["tmpfs"] == scratch, name


def test_compose_gives_each_process_its_own_secrets_only() -> None:
    """An empty value takes precedence over the one in .env."""
    empty = {name: {key for key, value in SERVICES[name]["environment"].items() if value == ""} for name in OURS}
    logins = {"ERRAND_API_DATABASE_URL", "ERRAND_WORKER_DATABASE_URL"}
    known = {"ANTHROPIC_API_KEY", "OPENAI_API_KEY"}  # the API knows that there is one, for the default model
    assert {SERVICES["api"]["environment"][name] for name in known} == {f"${{{name}:+of-the-worker}}" for name in known}
    assert empty == {
        "api": {*OF_THE_WORKER, *ONLY_COMPOSE, *logins} - known,
        "worker": {*ONLY_COMPOSE, *logins},
        "setup": {*OF_THE_WORKER, *ONLY_COMPOSE, "ERRAND_SECRET_KEYS"},
    }
    for name in SERVICES.keys() - set(OURS):
        assert "env_file" not in SERVICES[name], name


def test_compose_gives_each_process_its_own_role() -> None:
    urls = {name: SERVICES[name]["environment"]["ERRAND_DATABASE_URL"] for name in OURS}
    roles = {name: re.findall(r"//(\w+):\$\{(\w+):", url)[0] for name, url in urls.items()}
    assert roles == {
        "api": (API_ROLE, "API_DATABASE_PASSWORD"),
        "worker": (WORKER_ROLE, "WORKER_DATABASE_PASSWORD"),
        "setup": ("errand", "POSTGRES_PASSWORD"),
    }
    setup = SERVICES["setup"]["environment"]
    assert (setup["ERRAND_API_DATABASE_URL"], setup["ERRAND_WORKER_DATABASE_URL"]) == (urls["api"], urls["worker"])


def test_compose_temporal_asks_for_certificates_and_tokens(tmp_path: Path) -> None:
    """The variables are those of the template in the server's image; each process has only its own key."""
    made = set(certificates.make(tmp_path))
    server = SERVICES["temporal"]["environment"]
    assert server["TEMPORAL_TLS_REQUIRE_CLIENT_AUTH"] == "true"
    assert server["TEMPORAL_AUTH_AUTHORIZER"] == server["TEMPORAL_AUTH_CLAIM_MAPPER"] == "default"
    assert server["USE_INTERNAL_FRONTEND"] == "true" and "internal-frontend" in SERVICES["temporal"]["command"][-1]
    assert server["TEMPORAL_JWT_KEY_SOURCE1"] == "http://temporal-keys:8080/jwks.json"
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    asked = {server[f"TEMPORAL_TLS_{part}_SERVER_NAME"] for part in ("INTERNODE", "FRONTEND")}
    assert asked <= set(names.get_values_for_type(x509.DNSName))
    used: set[str] = set()
    for name, service in SERVICES.items():
        sources = {volume.split(":")[0].removeprefix("./") for volume in service.get("volumes", [])}
        files = {one.removeprefix(GENERATED) for one in sources if one.startswith(GENERATED)}
        env_files = {one.removeprefix(GENERATED) for one in service.get("env_file", []) if one.startswith(GENERATED)}
        used |= files | env_files
        keys = {file for file in files | env_files if file.endswith((".key", ".jwt", ".env", ".access"))}
        assert keys == HELD_KEYS.get(name, set()), name
        mounted = {volume.split(":")[1] for volume in service.get("volumes", [])}
        for variable, value in service.get("environment", {}).items():
            if str(value).startswith("/certs/"):
                assert value in mounted, f"{name}: {variable}"
    assert used - {"public"} <= made and "public/jwks.json" in made


HELD_KEYS = {
    "temporal": {"server.key"},
    "temporal-ui": {"ui.key"},
    "temporal-ui-guard": {"ui.jwt", "ui.access"},
    "api": {"errand.key", "errand.env"},
    "worker": {"errand.key", "errand.env"},
    "setup": {"errand.key", "setup.env"},
}


def test_compose_gives_no_command_a_network() -> None:
    """The operator can enable it in .env; compose.yaml does not."""
    assert all("ERRAND_SANDBOX_NETWORK" not in service.get("environment", {}) for service in SERVICES.values())
    assert example()["ERRAND_SANDBOX_NETWORK"] == "off"


def test_compose_contains_no_secret() -> None:
    text = (DEPLOY / "compose.yaml").read_text()
    wanted = re.findall(r"\$\{([^}]+)\}", text.replace("$$", ""))
    assert {one for one in wanted if not one.endswith(":+of-the-worker")} == {
        f"{name}:?set it in deploy/.env" for name in ONLY_COMPOSE
    }
    for name, service in SERVICES.items():
        for variable, value in service.get("environment", {}).items():
            if re.search("PASSWORD|PWD|KEY$|SECRET", variable):
                assert value == "" or value.startswith(("${", "/certs/")), f"{name}: {variable}"


def test_compose_grace_period_covers_the_drain() -> None:
    assert int(SERVICES["worker"]["stop_grace_period"].removesuffix("s")) > Settings().drain_seconds


def test_temporal_flags_are_the_same_everywhere() -> None:
    config = yaml.safe_load((DEPLOY / "temporal-dynamic-config.yaml").read_text())
    assert {key: json.dumps(values[0]["value"]) for key, values in config.items()} == FLAGS
