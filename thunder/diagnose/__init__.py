"""What is wrong, and where: the smallest failing graph, the first diverging operator.

| module | noun |
|---|---|
| `minimizer` | `minimize` |
| `target` | what is to be shrunk |
| `problem` | a graph, its inputs, and pieces of it |
| `shrinking` | delta debugging |
| `workers` | processes that are replaced when they crash |
| `examination`, `finding` | what a run of a piece shows |
| `display` | how far a search is |
"""

from thunder.diagnose.minimizer import MinimizeResult as MinimizeResult
from thunder.diagnose.minimizer import minimize as minimize
