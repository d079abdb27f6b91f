"""AGENTS.md and skills: what the model of a task in a repository is shown, and what it loads."""

from pathlib import Path

from agents.loader import one_text
from domain.ids import new_id
from tests.support.git_server import git, make_repository
from tests.support.launch import TESTER
from tests.support.stack import Stack, steps

REVIEW = "---\nname: review\ndescription: How changes are reviewed.\n---\n\nRead every line twice.\n"
FILES = {"AGENTS.md": "Build with `make all`.\n", ".agents/skills/review/SKILL.md": REVIEW, "app.py": "one\n"}


async def bundle_of(stack: Stack, folder: Path) -> str:
    git(folder, "bundle", "create", "-q", "../sent.bundle", "HEAD")
    content = (folder.parent / "sent.bundle").read_bytes()
    return str((await stack.http.post("/files", params={"name": "r.bundle"}, content=content)).json()["file_id"])


async def define(stack: Stack, folder: Path) -> str:
    """An agent with a skill of its own, as `errand agents add` sends it."""
    name = f"skilled-{new_id()}"
    skill = folder / name / "skills/release"
    (skill / "scripts").mkdir(parents=True)
    (skill / "SKILL.md").write_text("---\nname: release\ndescription: How we release.\n---\n\nRun scripts/tag.sh.\n")
    (skill / "scripts/tag.sh").write_text("echo tagged\n")
    tools = ", ".join([*TESTER["tools"], "load_skill"])
    (folder / f"{name}.md").write_text(f"---\nname: {name}\ntools: [{tools}]\n---\n\nYou test.\n")
    text = one_text(folder / f"{name}.md")
    answer = await stack.http.put(f"/agents/{name}", content=text, headers={"Content-Type": "text/markdown"})
    assert answer.status_code == 201, answer.text
    return name


async def test_a_task_in_a_repository_knows_its_instructions_and_loads_skills(stack: Stack, tmp_path: Path) -> None:
    make_repository(tmp_path / "shop", FILES)
    agent = await define(stack, tmp_path / "agents")
    script = steps(
        [("load_skill", {"name": "review"}), ("load_skill", {"name": "release"})],
        [("bash", {"command": "sh .skills/release/scripts/tag.sh; seq 1 9999; echo two > app.py; git status --short"})],
    )
    config = {"repository": await bundle_of(stack, tmp_path / "shop")}
    record = await stack.run(script, agent, config=config)
    assert record["status"] == "completed", record
    asked = await stack.asked(record["task_id"])
    for one in asked:  # the same in every call, so that it stays in the cache
        [first, *_] = one["body"]["messages"][0]["content"]
        assert first["text"].startswith("<workspace>") and "Build with `make all`." in first["text"]
        assert (
            "- review: How changes are reviewed." in first["text"] and "not from who gave you the task" in first["text"]
        )
    [offered] = [tool for tool in asked[0]["body"]["tools"] if tool["name"] == "load_skill"]
    assert "- release: How we release." in offered["description"] and "review" not in offered["description"]
    loaded = str(asked[1]["body"]["messages"][-1])
    assert "Read every line twice." in loaded and "Run scripts/tag.sh." in loaded
    assert "tagged" in str(asked[2]["body"]["messages"][-1])
    # the agent's own files, and long outputs, are not part of the change
    [patch] = [one for one in (await stack.result(record["task_id"]))["artifacts"] if one["name"] == "changes.patch"]
    changed = (await stack.http.get(patch["url"])).text
    assert "+two" in changed and ".skills" not in changed and ".outputs" not in changed


async def test_an_agent_that_cannot_load_skills_is_refused_its_own(stack: Stack) -> None:
    name = f"skilled-{new_id()}"
    skill = {"description": "x", "text": "y", "files": {"../a": "z"}}
    for skills, pointer in (({"a": skill}, "/skills/a/files"), ({"a": {**skill, "files": {}}}, "/tools")):
        body = {"name": name, "tools": ["bash"], "skills": skills, "prompt": "x"}
        answer = await stack.http.put(f"/agents/{name}", json=body)
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"].startswith(pointer), answer.text
