"""How each ATen operator becomes nvFuser operators: one module a family, one table each.

A lowering takes the `Builder` and the operator's arguments, named as in its ATen signature, with
the fusion's values in place of tensors. To add an operator, add an entry to the table of its
family; the tests then hold it to eager, on CPU by a fake nvFuser and on the GPU.
"""

__all__: list[str] = []
