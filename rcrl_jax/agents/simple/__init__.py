"""SimPLe: PPO inside a learned model of the game."""
