"""What `support` and `splitter` are made of.

| module | noun |
|---|---|
| `node_values` | what is known of the values of a captured graph |
| `effects` | what nodes do besides giving a value |
| `excluded_ops` | which nodes `exclude_ops` means |
| `ambient_state` | gradient mode, autocast and the like, and how pieces re-establish them |
| `indivisible_regions` | what must not be cut |
| `crossing_changes` | changes in place whose effect crosses a cut |
| `unneeded_gradients` | values that leave a piece detached |
| `crossing` | tensors and sizes only between pieces |
| `partition_graphs` | the graphs of the pieces and of their caller |
"""
