# SPDX-License-Identifier: Apache-2.0
"""Tools for a model: the list with JSON schemas, and its calls."""
from sandglass import Client

client = Client()
tools = {tool["name"]: tool for tool in client.tools()}
print("bash" in tools, tools["bash"]["input_schema"]["type"])

with client.session() as session:
    for name, arguments in [("bash", {"command": "echo from a tool"}), ("python", {"code": "2 ** 10"})]:
        result = session.call_tool(name, arguments)
        print(result.is_error, result.text.splitlines()[0])

# prints:
# True object
# False from a tool
# False 1024
