"""How muse touches the world: models, tools, and the runner that keeps commands alive."""
