"""What works here and what does not, and why: findings, without a screen to show them on."""
