# SPDX-License-Identifier: Apache-2.0
"""Many sessions at once with asyncio, all gone at the end of the scope."""
import asyncio

from sandglass import AsyncClient


async def solve(client: AsyncClient, number: int) -> str:
    async with await client.session() as session:
        return (await session.run(["expr", str(number), "*", str(number)])).stdout.strip()


async def main() -> None:
    async with AsyncClient() as plain, plain.scope() as client:
        print(await asyncio.gather(*(solve(client, number) for number in range(1, 6))))


asyncio.run(main())

# prints:
# ['1', '4', '9', '16', '25']
