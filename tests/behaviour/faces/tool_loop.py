"""A program with an agent of openai-agents. It is a separate process because that package is called `agents` too.

Arguments: a text for the model, `history` or `stream`, a file, and perhaps instructions of an agent to hand over to.
The tool writes a line for each call and returns when the file exists. At the end the program writes the final output.
"""

import asyncio
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI


def write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


async def main(text: str, form: str, go: Path, *experts: str) -> None:
    sdk: Any = import_module("agents")  # the installed package: the repository is not on the path of this process
    sdk.set_tracing_disabled(True)

    @sdk.function_tool  # type: ignore[untyped-decorator]
    def look_up(order: int) -> str:
        """Looks an order up."""
        write(f"look_up {order}")
        while not go.exists():
            time.sleep(0.05)  # this runs in a thread of the SDK
        return f"order {order} is on its way"

    client = AsyncOpenAI(max_retries=8, timeout=90, _strict_response_validation=True)
    model = sdk.OpenAIResponsesModel(model="tester", openai_client=client)
    handoffs = [sdk.Agent(name="expert", instructions=one, model=model, tools=[look_up]) for one in experts]
    about = "Answer questions about orders."
    agent = sdk.Agent(name="clerk", instructions=about, model=model, tools=[look_up], handoffs=handoffs)
    if form == "stream":
        run = sdk.Runner.run_streamed(agent, text, auto_previous_response_id=True)
        async for _ in run.stream_events():
            pass
    else:
        run = await sdk.Runner.run(agent, text)
    write(f"final {run.last_agent.name}: {run.final_output}")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), *sys.argv[4:]))
