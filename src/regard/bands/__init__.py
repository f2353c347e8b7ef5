"""The usual courses of recipes that come with Regard: kept in files, made from runs, and told to runs they hold for.

A course is measured with runs of one recipe that differ in their seed alone, at best several, and kept in
`recipes/bands/RECIPE.toml`. It is meant for a run of the same recipe (its name, model, vocabulary and objective) on
about as much data, of a generated corpus also in the same languages. What else differs, the learning rate or the files
of the corpus say, does not make it another recipe: it may be the cause of an unusual loss, and is named as such. Under
another name, it is the same recipe on the very same corpus alone.
"""
