"""What is wrong, and where: the smallest failing graph, the first diverging operator.

| module | noun |
|---|---|
| `minimizer` | `minimize` |
| `target` | what is to be shrunk |
| `problem` | a graph, its inputs, and pieces of it |
| `shrinking` | delta debugging |
| `workers` | processes that are replaced when they crash |
| `examination`, `finding` | what a run of a piece shows |
| `scripts` | the script of a minimal graph |
| `divergence` | `find_divergence` |
| `recording` | graphs run in eager mode, and what they were called with |
| `localizing` | from a wrong stage to the operator |
| `display` | how far a search is |
| `interruption` | what Ctrl-C does not stop |
"""

from thunder.diagnose.divergence import Divergence as Divergence
from thunder.diagnose.divergence import find_divergence as find_divergence
from thunder.diagnose.minimizer import MinimizeResult as MinimizeResult
from thunder.diagnose.minimizer import minimize as minimize
