"""A trace as one self-contained page: no script, no resource from elsewhere, every text escaped."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files

from cli.render.output import clean, duration
from domain.sessions.session import Usage
from domain.sessions.trace import ModelSpan, StepTrace, ToolSpan, Trace

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


@dataclass(frozen=True)
class Span:
    """A bar of the timeline."""

    start: datetime
    end: datetime
    kind: str  # model | tool | failed
    label: str
    usage: Usage | None = None


@dataclass(frozen=True)
class Row:
    """A thread of the timeline."""

    trace: Trace
    depth: int
    spans: list[Span]


def page(trace: Trace) -> str:
    style = files("cli.render").joinpath("trace_page.css").read_text()
    rows = list(_rows(trace, 0))
    title = f"{trace.agent} · {trace.title or trace.session_id}"
    ending = f" ({trace.reason})" if trace.reason else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{_e(title)}</title>
<style>{style}</style>
</head>
<body>
<header>
<h1>{_e(title)}</h1>
<p><b class="{_e(trace.status)}">{_e(trace.status)}</b>{_e(ending)} · <code>{_e(trace.session_id)}</code>
· version {trace.agent_version} of {_e(trace.agent)} · {_e(trace.created_at.isoformat(timespec="seconds"))}</p>
</header>
{_figures(rows)}
<section><h2>Timeline</h2>{_timeline(rows)}</section>
<section><h2>Cost over time</h2>{_costs(rows)}</section>
<section><h2>Threads</h2><ul class="tree">{_threads(trace)}</ul></section>
<section><h2>Steps</h2>{_session(trace)}</section>
</body>
</html>
"""


def _rows(trace: Trace, depth: int) -> Iterator[Row]:
    """A row per session, subagents after whoever started them."""
    spans: list[Span] = []
    below: list[Trace] = list(trace.sessions)

    def gather(steps: list[StepTrace]) -> None:
        for step in steps:
            for call in step.models:
                label = f"step {step.step}: {call.model}, {_spent(call.usage)}"
                spans.append(Span(call.started_at, call.ended_at, "model", label, call.usage))
            for tool in step.tools:
                kind = "tool" if tool.state in ("ok", "started") else "failed"
                end = tool.ended_at or trace.ended_at or tool.started_at
                spans.append(Span(tool.started_at, end, kind, f"step {step.step}: {tool.tool} {tool.state}"))
                gather(tool.steps)
                below.extend(tool.sessions)

    gather(trace.steps)
    yield Row(trace, depth, spans)
    for child in sorted(below, key=lambda one: one.created_at):
        yield from _rows(child, depth + 1)


def _bounds(rows: list[Row]) -> tuple[datetime, float]:
    moments = [moment for row in rows for span in row.spans for moment in (span.start, span.end)]
    moments += [row.trace.created_at for row in rows]
    return min(moments), max(0.001, (max(moments) - min(moments)).total_seconds())


def _figures(rows: list[Row]) -> str:
    total = Usage()
    for row in rows:
        total = total.plus(row.trace.usage)
    _, seconds = _bounds(rows)
    pairs = [
        ("took", duration(seconds)),
        ("sessions", f"{len(rows)}"),
        ("model calls", f"{total.llm_calls:,}"),
        ("tool calls", f"{total.tool_invocations:,}"),
        ("tokens", f"{total.tokens:,}"),
        ("cost", "unknown" if total.cost_usd is None else f"${total.cost_usd:.4f}"),
    ]
    return "<dl>" + "".join(f"<div><dt>{name}</dt><dd>{_e(value)}</dd></div>" for name, value in pairs) + "</dl>"


def _timeline(rows: list[Row]) -> str:
    began, seconds = _bounds(rows)
    drawn = []
    for row in rows:
        lanes: list[datetime] = []  # until when each lane is taken
        bars = []
        for span in sorted(row.spans, key=lambda one: one.start):
            lane = next((place for place, until in enumerate(lanes) if until <= span.start), len(lanes))
            lanes[lane : lane + 1] = [span.end]
            left = 100 * (span.start - began).total_seconds() / seconds
            width = 100 * max(0.0, (span.end - span.start).total_seconds()) / seconds
            took = duration((span.end - span.start).total_seconds())
            bars.append(
                f'<i class="bar {span.kind}" style="left:{left:.3f}%;width:{width:.3f}%;top:{lane * 1.1:.1f}em"'
                f' title="{_e(span.label)}, {took}"></i>'
            )
        height = max(1, len(lanes)) * 1.1
        name = row.trace.name or row.trace.agent
        drawn.append(
            f'<a class="who" href="#{_e(row.trace.session_id)}" style="padding-left:{row.depth}em">{_e(name)}</a>'
            f'<div class="lane" style="height:{height:.1f}em">{"".join(bars)}</div>'
        )
    legend = '<p class="legend"><i class="bar model"></i> model <i class="bar tool"></i> tool'
    legend += f' <i class="bar failed"></i> not ok <span>0 s to {duration(seconds)}</span></p>'
    return f'<div class="timeline">{"".join(drawn)}</div>{legend}'


def _costs(rows: list[Row]) -> str:
    """What was spent so far, over the same time as the timeline; in tokens where nothing had a price."""
    began, seconds = _bounds(rows)
    spans = sorted((span for row in rows for span in row.spans), key=lambda span: span.end)
    calls = [(span.end, span.usage) for span in spans if span.usage]
    money = sum(usage.cost_usd or 0.0 for _, usage in calls)
    tokens = sum(usage.tokens for _, usage in calls)
    total = money or tokens or 1
    points, spent = ["0,100"], 0.0
    for moment, usage in calls:
        at = 1000 * (moment - began).total_seconds() / seconds
        points.append(f"{at:.1f},{100 - 100 * spent / total:.1f}")
        spent += (usage.cost_usd or 0.0) if money else usage.tokens
        points.append(f"{at:.1f},{100 - 100 * spent / total:.1f}")
    points.append(f"1000,{100 - 100 * spent / total:.1f}")
    label = f"$0 to ${money:.4f}" if money else f"no call had a price; 0 to {tokens:,} tokens"
    return (
        f'<svg viewBox="0 -4 1000 108" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<polyline points="{" ".join(points)}"/></svg><p class="legend">{label}</p>'
    )


def _threads(trace: Trace) -> str:
    below = [child for step in _every(trace.steps) for tool in step.tools for child in tool.sessions] + trace.sessions
    inner = f"<ul>{''.join(_threads(child) for child in below)}</ul>" if below else ""
    name = trace.name or trace.agent
    line = (
        f'<a href="#{_e(trace.session_id)}">{_e(name)}</a> <b class="{_e(trace.status)}">{_e(trace.status)}</b>'
        f" {_e(trace.title)} <small>{_e(_spent(trace.usage))}</small>"
    )
    return f"<li>{line}{inner}</li>"


def _every(steps: list[StepTrace]) -> Iterator[StepTrace]:
    for step in steps:
        yield step
        for tool in step.tools:
            yield from _every(tool.steps)


def _session(trace: Trace) -> str:
    marks = "".join(
        f"<li><small>{_e(mark.at.isoformat(timespec='seconds'))}</small> {_e(mark.type)}: {_e(mark.text)}</li>"
        for mark in trace.marks
    )
    aside = f"<details><summary>{len(trace.marks)} marks</summary><ul>{marks}</ul></details>" if marks else ""
    ending = f'<pre class="end">{_e(trace.error or trace.output or "")}</pre>' if trace.error or trace.output else ""
    more = "" if trace.complete else "<p>There is more than this page shows.</p>"
    return (
        f'<article id="{_e(trace.session_id)}">'
        f"<h3>{_e(trace.name or trace.agent)} <small>{_e(trace.session_id)}</small></h3>"
        f"{''.join(_step(step) for step in trace.steps)}{aside}"
        f"{''.join(_session(child) for child in trace.sessions)}{ending}{more}</article>"
    )


def _step(step: StepTrace) -> str:
    first = step.models[0].text if step.models else ""
    tools = ", ".join(tool.tool for tool in step.tools)
    head = f"<b>Step {step.step}</b> {_e(' '.join(first.split())[:160])} <small>{_e(tools)}</small>"
    models = "".join(_model(span) for span in step.models)
    return f"<details><summary>{head}</summary>{models}{''.join(_tool(tool) for tool in step.tools)}</details>"


def _model(span: ModelSpan) -> str:
    took = duration((span.ended_at - span.started_at).total_seconds())
    tries = f", {span.attempts} attempts" if span.attempts > 1 else ""
    thinking = f'<pre class="thinking">{_e(span.thinking)}</pre>' if span.thinking else ""
    text = f"<pre>{_e(span.text)}</pre>" if span.text else ""
    return f"<p><small>{_e(span.model)}, {took}{tries}, {_e(_spent(span.usage))}</small></p>{thinking}{text}"


def _tool(span: ToolSpan) -> str:
    took = duration((span.ended_at - span.started_at).total_seconds()) if span.ended_at else "not ended"
    kind = "completed" if span.state == "ok" else "failed"
    inner = "".join(_step(step) for step in span.steps) + "".join(_session(child) for child in span.sessions)
    return (
        f'<div class="deed"><p><code>{_e(span.tool)}</code> <b class="{kind}">{_e(span.state)}</b>'
        f" <small>call {span.index}, {took}</small></p>"
        f"<pre>{_e(span.arguments)}</pre>{inner}<pre>{_e(span.result)}</pre></div>"
    )


def _spent(usage: Usage) -> str:
    cost = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return f"{usage.tokens:,} tokens, {cost}"


def _e(text: str) -> str:
    return escape(clean(text), quote=True)
