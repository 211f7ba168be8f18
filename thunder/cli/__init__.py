"""The command line: `thunder COMMAND`, or `python -m thunder COMMAND`.

| module | noun |
|---|---|
| `main` | the commands, errors and exit statuses |
| `arguments` | the parser |
| `report_command`, `script_commands`, `comparison_commands` | the commands |
| `program_target` | `SCRIPT_OR_MODULE:FUNCTION` |
| `fail_on` | `--fail-on` |
| `contestant_names` | `--against` |
"""

from thunder.cli.main import main as main
