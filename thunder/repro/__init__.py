"""Scripts that reproduce: a graph, its inputs and how it was compiled, as one file that runs.

| module | noun |
|---|---|
| `script` | `ReproScript`, everything that a script says |
| `module_source`, `statements`, `higher_order`, `module_state` | graph modules as classes |
| `inputs`, `measuring`, `memory`, `recipes`, `sizes` | inputs as recorded |
| `input_source` | recorded inputs as statements |
| `callable_source` | plain functions, before there is a graph |
| `module_object` | live modules, before there is a graph |
| `values`, `functions`, `imported_modules`, `operators` | other objects as source |
| `triton_kernels`, `process_groups`, `dtensor_calls` | likewise |
| `collecting` | what the source of one script has gathered |
| `compilers` | ways to compile, as source |
| `surroundings` | modes and settings around a call |
| `header`, `linking` | the head of a script; the support code that it uses |
| `writer` | files, whole or not at all |
| `verification` | running a script once in a fresh process |

Templates and the support code are in `templates/`.
"""

from thunder.repro.callable_source import call_with_keywords as call_with_keywords
from thunder.repro.callable_source import callable_source as callable_source
from thunder.repro.compilers import EAGER as EAGER
from thunder.repro.compilers import CompileSource as CompileSource
from thunder.repro.compilers import call_source as call_source
from thunder.repro.compilers import jit_source as jit_source
from thunder.repro.compilers import thunderfx_source as thunderfx_source
from thunder.repro.compilers import torch_compile_source as torch_compile_source
from thunder.repro.inputs import RecordedInputs as RecordedInputs
from thunder.repro.inputs import record_inputs as record_inputs
from thunder.repro.module_source import ModuleSource as ModuleSource
from thunder.repro.module_source import module_source as module_source
from thunder.repro.script import ReproScript as ReproScript
from thunder.repro.script import ScriptKind as ScriptKind
from thunder.repro.values import SaysHowItWasMade as SaysHowItWasMade
from thunder.repro.values import ValueSource as ValueSource
from thunder.repro.values import value_source as value_source
from thunder.repro.verification import Crashes as Crashes
from thunder.repro.verification import Differs as Differs
from thunder.repro.verification import Expectation as Expectation
from thunder.repro.verification import Fails as Fails
from thunder.repro.verification import Hangs as Hangs
from thunder.repro.verification import Passes as Passes
from thunder.repro.verification import Status as Status
from thunder.repro.verification import Verdict as Verdict
from thunder.repro.verification import verify as verify
from thunder.repro.writer import make_folder as make_folder
from thunder.repro.writer import write_file as write_file
from thunder.repro.writer import write_text as write_text
