"""The ground floor: episode file, manifest, loader and one small recipe.

Importing this package loads neither torch nor anything of the asset graph; torch comes with
`dyna_train.loader` and `dyna_train.recipe`.
"""
