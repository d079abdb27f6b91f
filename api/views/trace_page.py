"""A trace as one self-contained HTML page: no script, no other resource, every text escaped."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from importlib.resources import files

from domain.amounts import clean, counted, duration, shortened, spent
from domain.sessions.input_request import InputRequest
from domain.sessions.session import Usage
from domain.sessions.trace import ModelSpan, StepTrace, ToolSpan, Trace, every_step

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
TICKS = 5  # numbers of the time axis


@dataclass(frozen=True)
class TimelineBar:
    """A model or tool call in the timeline."""

    start: datetime
    end: datetime
    kind: str  # model | tool | failed
    label: str
    usage: Usage | None = None


@dataclass(frozen=True)
class TimelineRow:
    """A session in the timeline."""

    trace: Trace
    depth: int
    bars: list[TimelineBar]


def trace_page(trace: Trace, waiting: Sequence[InputRequest] = ()) -> str:
    """The page of a task; `waiting` are the open requests of the task and its subagents."""
    style = files("api").joinpath("views/trace_page.css").read_text()
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
{_waiting(waiting)}
{_figures(rows)}
<section><h2>Timeline</h2>{_timeline(rows)}</section>
<section><h2>Cost over time</h2>{_costs(rows)}</section>
<section><h2>Threads</h2><ul class="tree">{_threads(trace)}</ul></section>
<section><h2>Steps</h2>{_session(trace)}</section>
</body>
</html>
"""


def _waiting(requests: Sequence[InputRequest]) -> str:
    """The open requests, above everything else."""
    items = "".join(
        f"<li><b>{_e(one.kind.replace('_', ' '))}</b> {_e(one.question)}"
        f" <small>until {_e(one.deadline.isoformat(timespec='seconds'))}</small></li>"
        for one in requests
    )
    return f'<section class="waiting"><h2>Waiting for an answer</h2><ul>{items}</ul></section>' if items else ""


def _rows(trace: Trace, depth: int) -> Iterator[TimelineRow]:
    """A row for each session, subagents after the session that started them."""
    bars: list[TimelineBar] = []
    for step in every_step(trace.steps):
        for call in step.models:
            label = f"step {step.step}: {call.model}, {spent(call.usage)}"
            bars.append(TimelineBar(call.started_at, call.ended_at, "model", label, call.usage))
        for tool in step.tools:
            kind = "tool" if tool.state in ("ok", "started") else "failed"
            end = tool.ended_at or trace.ended_at or tool.started_at
            bars.append(TimelineBar(tool.started_at, end, kind, f"step {step.step}: {tool.tool} {tool.state}"))
    yield TimelineRow(trace, depth, bars)
    for child in sorted(trace.child_sessions, key=lambda child: child.created_at):
        yield from _rows(child, depth + 1)


def _bounds(rows: list[TimelineRow]) -> tuple[datetime, float]:
    """The first moment of the timeline, and its length in seconds."""
    moments = [moment for row in rows for bar in row.bars for moment in (bar.start, bar.end)]
    moments += [row.trace.created_at for row in rows]
    # never zero, because positions are divided by it
    return min(moments), max(0.001, (max(moments) - min(moments)).total_seconds())


def _figures(rows: list[TimelineRow]) -> str:
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


def _timeline(rows: list[TimelineRow]) -> str:
    first, seconds = _bounds(rows)
    drawn = []
    for row in rows:
        lanes: list[datetime] = []  # the time until which each lane is used; overlapping bars get lanes below
        bars = []
        for bar in sorted(row.bars, key=lambda bar: bar.start):
            lane = next((index for index, until in enumerate(lanes) if until <= bar.start), len(lanes))
            lanes[lane : lane + 1] = [bar.end]
            left = 100 * (bar.start - first).total_seconds() / seconds
            width = 100 * max(0.0, (bar.end - bar.start).total_seconds()) / seconds
            took = duration((bar.end - bar.start).total_seconds())
            bars.append(
                f'<i class="bar {bar.kind}" style="left:{left:.3f}%;width:{width:.3f}%;top:{lane * 1.1:.1f}em"'
                f' title="{_e(bar.label)}, {took}"></i>'
            )
        height = max(1, len(lanes)) * 1.1
        name = row.trace.name or row.trace.agent
        drawn.append(
            f'<a class="who" href="#{_e(row.trace.session_id)}" style="padding-left:{row.depth}em">{_e(name)}</a>'
            f'<div class="lane" style="height:{height:.1f}em">{"".join(bars)}</div>'
        )
    legend = '<p class="legend"><i class="bar model"></i> model <i class="bar tool"></i> tool'
    legend += ' <i class="bar failed"></i> not ok</p>'
    return f'<div class="timeline">{"".join(drawn)}<span></span>{_axis(seconds)}</div>{legend}'


def _axis(seconds: float) -> str:
    moments = [seconds * tick / (TICKS - 1) for tick in range(TICKS)]
    ticks = [f"{1_000 * moment:.0f} ms" if seconds < 2 else duration(moment) for moment in moments]
    return f'<div class="axis">{"".join(f"<span>{tick}</span>" for tick in ticks)}</div>'


def _costs(rows: list[TimelineRow]) -> str:
    """The cost so far over the time of the timeline; in tokens if no model has a price."""
    first, seconds = _bounds(rows)
    bars = sorted((bar for row in rows for bar in row.bars), key=lambda bar: bar.end)
    calls = [(bar.end, bar.usage) for bar in bars if bar.usage]
    money = sum(usage.cost_usd or 0.0 for _, usage in calls)
    tokens = sum(usage.tokens for _, usage in calls)
    total = money or tokens or 1
    points, so_far = ["0,100"], 0.0
    for moment, usage in calls:
        at = 1000 * (moment - first).total_seconds() / seconds
        points.append(f"{at:.1f},{100 - 100 * so_far / total:.1f}")
        so_far += (usage.cost_usd or 0.0) if money else usage.tokens
        points.append(f"{at:.1f},{100 - 100 * so_far / total:.1f}")
    points.append(f"1000,{100 - 100 * so_far / total:.1f}")
    label = f"$0 to ${money:.4f}" if money else f"no model has a price; 0 to {tokens:,} tokens"
    return (
        f'<svg viewBox="0 -4 1000 108" preserveAspectRatio="none" role="img" aria-label="{label}">'
        f'<polyline points="{" ".join(points)}"/></svg>{_axis(seconds)}<p class="legend">{label}</p>'
    )


def _threads(trace: Trace) -> str:
    children = trace.child_sessions
    inner = f"<ul>{''.join(_threads(child) for child in children)}</ul>" if children else ""
    name = trace.name or trace.agent
    line = (
        f'<a href="#{_e(trace.session_id)}">{_e(name)}</a> <b class="{_e(trace.status)}">{_e(trace.status)}</b>'
        f" {_e(trace.title)} <small>{_e(spent(trace.usage))}</small>"
    )
    return f"<li>{line}{inner}</li>"


def _session(trace: Trace) -> str:
    marks = "".join(
        f"<li><small>{_e(mark.at.isoformat(timespec='seconds'))}</small> {_e(mark.type)}: {_e(mark.text)}</li>"
        for mark in trace.marks
    )
    aside = (
        f"<details><summary>{counted(len(trace.marks), 'mark')}</summary><ul>{marks}</ul></details>" if marks else ""
    )
    ending = f'<pre class="end">{_e(trace.error or trace.output or "")}</pre>' if trace.error or trace.output else ""
    more = "" if trace.complete else "<p>This page was cut: there is more.</p>"
    return (
        f'<article id="{_e(trace.session_id)}">'
        f"<h3>{_e(trace.name or trace.agent)} <small>{_e(trace.session_id)}</small></h3>"
        f"{''.join(_step(step) for step in trace.steps)}{aside}"
        f"{''.join(_session(child) for child in trace.sessions)}{ending}{more}</article>"
    )


def _step(step: StepTrace) -> str:
    first = step.models[0].text if step.models else ""
    tools = ", ".join(tool.tool for tool in step.tools)
    speaker = f" {_e(step.speaker)}" if step.speaker else ""
    head = f"<b>Step {step.step}{speaker}</b> {_e(shortened(first, 160))} <small>{_e(tools)}</small>"
    models = "".join(_model(span) for span in step.models)
    return f"<details><summary>{head}</summary>{models}{''.join(_tool(tool) for tool in step.tools)}</details>"


def _model(span: ModelSpan) -> str:
    took = duration((span.ended_at - span.started_at).total_seconds())
    tries = f", {counted(span.attempts, 'attempt')}" if span.attempts > 1 else ""
    thinking = f'<pre class="thinking">{_e(span.thinking)}</pre>' if span.thinking else ""
    text = f"<pre>{_e(span.text)}</pre>" if span.text else ""
    return f"<p><small>{_e(span.model)}, {took}{tries}, {_e(spent(span.usage))}</small></p>{thinking}{text}"


def _tool(span: ToolSpan) -> str:
    took = duration((span.ended_at - span.started_at).total_seconds()) if span.ended_at else "not ended"
    kind = "completed" if span.state == "ok" else "failed"
    inner = "".join(_step(step) for step in span.steps) + "".join(_session(child) for child in span.sessions)
    return (
        f'<div class="call"><p><code>{_e(span.tool)}</code> <b class="{kind}">{_e(span.state)}</b>'
        f" <small>call {span.index}, {took}</small></p>"
        f"<pre>{_e(span.arguments)}</pre>{inner}<pre>{_e(span.result)}</pre></div>"
    )


def _e(text: str) -> str:
    # quotes too, because some of these texts are in attributes
    return escape(clean(text), quote=True)
