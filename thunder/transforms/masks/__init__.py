"""What a tensor that is computed from indices alone holds: exactly, and for every size.

| module | noun |
|---|---|
| `affine` | integer expressions that are linear in indices and sizes; contradictions between them |
| `sizes` | torch's symbolic sizes as such expressions (the adapter to torch's internals) |
| `piecewise` | functions of the index: case distinctions over linear conditions |
| `indexed_tensor` | a tensor known as such a function |
| `operators` | which torch functions are understood, and what they do to memory |
| `pointwise`, `layout` | the rules of those functions |
| `analysis` | walks a captured graph and says what each mask is |
"""
