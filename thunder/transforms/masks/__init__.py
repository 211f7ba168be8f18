"""What a tensor that is computed from indices alone holds: exactly, and for every size.

| module | noun |
|---|---|
| `affine` | integer expressions that are linear in indices and sizes; contradictions between them |
| `sizes` | torch's symbolic sizes as such expressions (the adapter to torch's internals) |
| `piecewise` | functions of the index: case distinctions over linear conditions |
| `indexed_tensor` | a tensor known as such a function |
| `operators` | what an understood operation is: what it computes and what it does to memory |
| `pointwise`, `layout`, `indexing` | what the understood operations compute |
| `rules` | the table of them |
| `bodies` | graphs that higher-order operators run as they are |
| `analysis` | walks a captured graph and says what chosen operands hold |
| `forms` | which of the masks that have a name a tensor is |
| `origins` | where a mask that is not known comes from |
| `unused` | removes what computed a mask that nobody reads any more |
"""
